"""The evaluation of Wietzke and Graichen, study by study, beside the published numbers."""
