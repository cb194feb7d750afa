tool
extends EditorPlugin
# Adds RlxAgent to the editor's list of nodes.


func _enter_tree():
	add_custom_type("RlxAgent", "Node", preload("rlx_agent.gd"), null)


func _exit_tree():
	remove_custom_type("RlxAgent")
