/** Tests of the rules, without a page: `node --test environment/bandit.test.mjs`; `pytest` runs them, too. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { ARMS, Bandit } from "./bandit.mjs";

/** Repeatable numbers from 0 to 1. */
function counted(seed) {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

test("a pull pays 1 or -1, and the last arm pays most", () => {
  const bandit = new Bandit(counted(1));
  const paid = ARMS.map((_, arm) => {
    let total = 0;
    for (let i = 0; i < 3000; i += 1) {
      const reward = bandit.pull(arm);
      assert.ok(reward === 1 || reward === -1);
      total += reward;
    }
    return total / 3000;
  });
  assert.ok(paid[3] === Math.max(...paid));
  // Twice the chance of a normal number above -0.5, less 1.
  assert.ok(Math.abs(paid[3] - 0.383) < 0.06);
});
