"""The embedded broker: one process, one SQLite file, one socket; nothing to install.

For demos, tests and development on one machine. It plays all three handover abilities, chosen when it starts.

    protocol   frames and the packed form of a message
    queues     one exclusive queue as a sans-I/O machine
    catalog    streams, groups, ownership and conflicts; pure
    store      the SQLite file: schema, transactions, pages; the only SQL
    engine     operations in, frames and one write batch out; no sockets, no clock
    server     sockets, heartbeats and the commit loop around an engine
    connection, client, links, admin   the other end: the adapter that `lbg.brokers.base` describes
    process    start the broker as a child process, or be that process

Nothing here may know the consumer runtime, Kubernetes or the command line. Only `store` speaks SQL, only `protocol`
touches msgpack, and messages stay packed from the publisher's process to the consumer's: the broker never decodes one.
"""
