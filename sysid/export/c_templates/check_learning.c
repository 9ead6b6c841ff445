
/* Largest deviation after learning the rows; *n_others is the number of other decisions. */
static real check_learning(model_state *state, int *n_others)
{
    model_init(state);
    *n_others = 0;
    for (int k = 0; k < N_LEARNED; k++) {
        for (int i = 0; i < MODEL_N_TARGETS; i++) {
            int j = k * MODEL_N_TARGETS + i;
            model_report report;
            model_update(state, i, CHECK_ROWS + k * MODEL_N_FEATURES, CHECK_TARGETS[j], &report);
            *n_others += report.slot != CHECK_SLOTS[j] || report.outlier != CHECK_OUTLIERS[j];
        }
    }
    return check_predictions(state, LEARNED_MEAN, LEARNED_VARIANCE);
}
