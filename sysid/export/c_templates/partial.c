
int model_partial(model_state *state, const model_real y[],
                  const unsigned char measured[]{u}{u_next}, model_prediction next[])
{
    return take(state, y, measured, {u_argument}, {u_next_argument}, next);
}
