// SPDX-License-Identifier: Apache-2.0
// Functions written once over Vec. Included by for_each_isa.h, inside the namespace of the
// instruction set.

// e^x within 2 units in the last place; 0 below -87.33 (the smallest normal float), 2.3e38
// above 88.37.
inline Vec Exp(Vec x) {
    const Vec clamped = Max(Set(-87.3365402F), Min(Set(88.3762589F), x));  // NaN stays NaN
    const Vec n = Round(Mul(clamped, Set(1.44269504F)));
    // ln 2 in two parts, so that x - n ln 2 keeps its last bits.
    Vec r = Fma(n, Set(-0.693359375F), clamped);
    r = Fma(n, Set(2.12194440e-4F), r);
    Vec p = Set(1.9875691500e-4F);
    p = Fma(p, r, Set(1.3981999507e-3F));
    p = Fma(p, r, Set(8.3334519073e-3F));
    p = Fma(p, r, Set(4.1665795894e-2F));
    p = Fma(p, r, Set(1.6666665459e-1F));
    p = Fma(p, r, Set(5.0000001201e-1F));
    p = Fma(Mul(r, r), p, Add(r, Set(1.0F)));
    return IfLess(x, Set(-87.3365402F), Zero(), Mul(p, Pow2(n)));
}

// 2^x within 2e-7 of it, for x up to 0; 0 below -126.5. The lowest bits of x + `shift` are n + 127
// for the whole n nearest to x: the exponent of 2^n.
inline Vec Exp2(Vec x) {
    const Vec shift = Set(12583039.0F);
    const Vec clamped = Max(Set(-127.0F), x);  // NaN stays NaN
    const Vec shifted = Add(clamped, shift);
    const Vec r = Sub(clamped, Sub(shifted, shift));
    Vec p = Set(1.3264727313e-3F);
    p = Fma(p, r, Set(9.6715129912e-3F));
    p = Fma(p, r, Set(5.5507335812e-2F));
    p = Fma(p, r, Set(2.4022242427e-1F));
    p = Fma(p, r, Set(6.9314700365e-1F));
    p = Fma(p, r, Set(1.0F));
    return Mul(p, ExponentOf(shifted));
}

// 1 / (1 + e^-x)
inline Vec Sigmoid(Vec x) { return Div(Set(1.0F), Add(Set(1.0F), Exp(Sub(Zero(), x)))); }

inline Vec Tanh(Vec x) { return Sub(Set(1.0F), Div(Set(2.0F), Add(Set(1.0F), Exp(Add(x, x))))); }

template <class T>
inline T Least(T a, T b) {
    return b < a ? b : a;
}
template <class T>
inline T Most(T a, T b) {
    return a < b ? b : a;
}
