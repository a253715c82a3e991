"""Reports: executed notebooks whose cells display fragments and figures, and the pages made from them."""

from meshtrial.report.catalogue import read_entry as read_entry
from meshtrial.report.catalogue import reports as reports
from meshtrial.report.catalogue import write_entry as write_entry
from meshtrial.report.catalogue import write_index as write_index
from meshtrial.report.html import notebook_to_html as notebook_to_html
from meshtrial.report.html import report_seal as report_seal
from meshtrial.report.markup import Fragment as Fragment
