"""`python -m bench`: see `bench.command`. The import is inside, since Ctrl-C may come while it goes on."""

import sys

try:
    from bench import command

    code = command.main()
except KeyboardInterrupt:
    code = 130
sys.exit(code)
