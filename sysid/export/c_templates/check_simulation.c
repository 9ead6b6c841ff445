
/* Largest deviation of a free run. */
static real check_simulation(const model_state *state)
{
    static real y[N_SIMULATED * MODEL_N_OUTPUTS];
    real largest = 0;
    for (int j = 0; j < N_FIRST_CHECKED * MODEL_N_OUTPUTS; j++) {
        y[j] = CHECK_Y[j];
    }
    model_simulate(state{u_of_check}, N_SIMULATED, N_FIRST_CHECKED, y);
    for (int j = 0; j < N_SIMULATED * MODEL_N_OUTPUTS; j++) {
        largest = worse(largest, y[j], CHECK_Y[j], j % MODEL_N_OUTPUTS);
    }
    return largest;
}
