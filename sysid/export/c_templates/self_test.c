#ifdef SYSID_TEST
#include <stdio.h>

/* Values of the model at export, and sizes of its outputs. */
{evidence}

/* The largest of `largest` and the difference of two values in sizes of the output i. */
static real worse(real largest, real found, real expected, int i)
{
    real difference = ABS(found - expected) / CHECK_SIZE[i];
    return difference <= largest ? largest : difference;
}

/* Largest deviation of means and variances of the function at the regressors. */
static real check_predictions(const model_state *state, const real *mean, const real *variance)
{
    real largest = 0;
    for (int k = 0; k < N_CHECKED; k++) {
        model_prediction found[MODEL_N_TARGETS];
        model_predict(state, CHECK_REGRESSORS + k * MODEL_N_FEATURES, found);
        for (int i = 0; i < MODEL_N_TARGETS; i++) {
            int j = k * MODEL_N_TARGETS + i;
            largest = worse(largest, found[i].mean, mean[j], i);
            largest = worse(largest, found[i].variance / CHECK_SIZE[i],
                            variance[j] / CHECK_SIZE[i], i);
        }
    }
    return largest;
}

/* Largest deviation of the predictions of `step` from those at the same regressors. */
static real check_steps(model_state *state)
{
    real largest = 0;
    model_reset(state);
    for (int k = 0; k < N_CHECKED_STEPS; k++) {
        model_prediction next[MODEL_N_TARGETS];
        const real *y = CHECK_STEP_Y + k * MODEL_N_OUTPUTS;
{step_inputs}        if (model_step(state, y{u_of_step}, next) != MODEL_OK) {
            continue;
        }
        for (int i = 0; i < MODEL_N_TARGETS; i++) {
            largest = worse(largest, next[i].mean, CHECK_NEXT[k * MODEL_N_TARGETS + i], i);
        }
    }
    model_reset(state);
    return largest;
}
{check_simulation}{check_learning}{check_addition}
int main(void)
{
    static model_state state;
    real largest = 0;
    real found;
    model_init(&state);
    printf("deviations from the model, in standard deviations of the output\n");
    found = check_predictions(&state, CHECK_MEAN, CHECK_VARIANCE);
    largest = MAX(largest, found);
    printf("  predict  %.1e\n", (double)found);
    found = check_steps(&state);
    largest = MAX(largest, found);
    printf("  step     %.1e\n", (double)found);
{more_checks}    found = largest < R(TOLERANCE) ? R(0.0) : R(1.0);
    printf("largest deviation %.1e: %s\n", (double)largest,
           found > R(0.0) ? "NOT the exported model" : "as exported");
    return found > R(0.0);
}
#endif
