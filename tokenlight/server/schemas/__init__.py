# SPDX-License-Identifier: Apache-2.0
"""What goes over HTTP: one struct per body, ranges declared where the field is."""
