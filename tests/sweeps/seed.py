"""The seed of samples that change every day: `SWEEP_SEED`, or the number of the day."""

import os
from datetime import date

SEED = int(os.environ.get("SWEEP_SEED", date.today().toordinal()))
