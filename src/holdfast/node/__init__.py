"""The node: composes the core. Events in, effects out; shells do the rest."""
