"""`python -m rowlock` is the command line."""

from rowlock.cli import main

if __name__ == "__main__":
    main()
