"""`python -m bench.soak`: see `bench.soak.command`. The import is inside, since Ctrl-C may come while it goes on."""

import sys

try:
    from bench.soak import command

    code = command.main()
except KeyboardInterrupt:
    code = 130
sys.exit(code)
