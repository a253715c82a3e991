# Every public name and where it lives, once: __init__.py loads a name from there when it is first used.
from meshtrial.api import display as display
from meshtrial.api import figures as figures
from meshtrial.api import sections as sections
from meshtrial.api import tables as tables
from meshtrial.api.comparison import Comparison as Comparison
from meshtrial.api.comparison import compare as compare
from meshtrial.api.comparison import compare_table as compare_table
from meshtrial.api.explore import Explorer as Explorer
from meshtrial.api.explore import explore as explore
from meshtrial.api.prediction import PredictedSystem as PredictedSystem
from meshtrial.api.prediction import predict as predict
from meshtrial.api.study import RecordedStudy as RecordedStudy
from meshtrial.api.study import columns as columns
from meshtrial.api.study import open_study as open_study
from meshtrial.api.study import recorded_studies as recorded_studies
from meshtrial.api.study import run as run
from meshtrial.api.study import run_notebook as run_notebook
from meshtrial.errors import MeshtrialError as MeshtrialError
from meshtrial.paths import CHECKOUT as CHECKOUT
from meshtrial.stats.power import blocks_for_difference as blocks_for_difference
from meshtrial.stats.power import blocks_for_equivalence as blocks_for_equivalence
from meshtrial.stats.simulate import simulate as simulate

__version__: str
