"""vars_to_refs and back."""

from __future__ import annotations


def test_lists_of_variables_become_hashable_and_come_back():
    import tensorflow as tf

    from horovod.tensorflow import refs_to_vars, vars_to_refs

    a, b, c = tf.Variable(1.0), tf.Variable(2.0), tf.Variable(3.0)
    nested = [[a, b], c]
    refs = vars_to_refs(nested)
    assert {refs: "hashable"}[((a.ref(), b.ref()), c.ref())] == "hashable"
    back = refs_to_vars(refs)
    assert back[0][0] is a and back[0][1] is b and back[1] is c
    assert refs_to_vars(vars_to_refs(a)) is a
