"""The command `lbg`: argument parsing, one line per error, exit codes, text and JSON on standard output.

What a command does is decided elsewhere: hashing, plans and verdicts in the packages below. Here they are called and
their answers are printed. Every module imports what is heavy inside the command that needs it, so that `lbg --help` and
`lbg hash` start fast and work without any optional extra.
"""
