"""The proof of P23: releases beside and after each other."""
