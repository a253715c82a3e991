# Every public name and where it lives, once: __init__.py loads a name from there when it is first used.
from meshtrial.api import figures as figures
from meshtrial.api import sections as sections
from meshtrial.api import tables as tables
from meshtrial.api.articles import Articles as Articles
from meshtrial.api.articles import BestOfN as BestOfN
from meshtrial.api.articles import best_of_n as best_of_n
from meshtrial.api.articles import published_articles as published_articles
from meshtrial.api.comparison import Comparison as Comparison
from meshtrial.api.comparison import compare as compare
from meshtrial.api.comparison import compare_table as compare_table
from meshtrial.api.study import RecordedStudy as RecordedStudy
from meshtrial.api.study import columns as columns
from meshtrial.api.study import open_study as open_study
from meshtrial.api.study import recorded_studies as recorded_studies
from meshtrial.api.study import run as run
from meshtrial.api.study import run_notebook as run_notebook
from meshtrial.errors import MeshtrialError as MeshtrialError
from meshtrial.explore.app import Explorer as Explorer
from meshtrial.explore.app import explore as explore

__version__: str
