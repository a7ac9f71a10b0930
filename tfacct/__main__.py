"""`python -m tfacct`."""

from tfacct.cli import main

if __name__ == "__main__":
    main()
