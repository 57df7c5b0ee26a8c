"""The page of a run under its old name, which notebooks import."""

from nmt.reporting.html_report import write as write
