"""TODO-DOOR"""
