"""`python -m cmdpkit` is the command `cmdpkit`."""

from cmdpkit.cli import main

if __name__ == "__main__":
    main()
