"""Reports: executed notebooks whose cells display fragments and figures, and the pages made from them."""

from meshtrial.report.catalogue import read_entry, reports, write_entry, write_index
from meshtrial.report.markup import Fragment
from meshtrial.report.pages import report_seal
