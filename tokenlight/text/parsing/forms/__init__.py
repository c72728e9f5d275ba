# SPDX-License-Identifier: Apache-2.0
"""How one call is written inside a section: a reader for each form that `format.py` describes."""
