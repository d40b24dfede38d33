"""Online policies side by side on recorded training steps, with the offline optimum beside them."""
