"""Any-order models: positions resolved one by one in a chosen order, each predicted at the row of a mask (Appendix C, D.2)."""
