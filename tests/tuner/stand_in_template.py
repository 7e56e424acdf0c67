"""A template whose children are stand-ins for the worker process. It ends after so many seconds without children."""

import runpy
import sys
from pathlib import Path

from deuteron.tuner.evaluate.child import end_with_parent
from deuteron.tuner.evaluate.template import serve

stand_in = str(Path(__file__).with_name("stand_in.py"))
end_with_parent(serve(float(sys.argv[1])))
runpy.run_path(stand_in, run_name="__main__")
