"""`python -m aforesaid` is `aforesaid`."""

from aforesaid.cli import main

if __name__ == "__main__":
    main()
