"""RabbitMQ 3.10 to 4.x, and brokers that speak its dialect: AMQP 0-9-1 for data, the management HTTP API for control.

    urls          one URL for both halves; no credentials in anything that is printed
    names         which object has which name
    features      what a version can do
    messages      a message as properties and body, and back
    connection    pika on our event loop: open, channels, errors in the words of the contract
    links         one channel per queue; the handover
    ledgers       the ledger queue beside a queue
    publishing    confirms, returns, order
    outputs       reading streams from an offset
    management    the HTTP API
    topology      what a group consists of, and what conflicts; pure
    administration, client   the two halves that `lbg.brokers.base` describes

Only `connection` and what stands on a channel touch pika; only `management` speaks HTTP. Nothing here may know the
consumer runtime, Kubernetes or the command line.
"""
