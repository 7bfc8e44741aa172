"""Deploy targets: from a plan, its machine and the profile's wishes to ready files and the command that applies them.

Pure: nothing here touches the machine. ``serve.target_folder`` writes what is made here.
"""
