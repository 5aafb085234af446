"""What makes the documentation: pages that are run, parts that are generated, figures."""
