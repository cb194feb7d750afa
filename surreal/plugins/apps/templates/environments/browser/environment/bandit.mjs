/** The bandit: four arms, each of which pays 1 or -1. Pure rules, no drawing, no network. */

/** A pull pays 1 if a number drawn from a normal distribution is above the arm's, else -1: the last arm is best. */
export const ARMS = [0.2, 0, -0.2, -0.5];

export class Bandit {
  /** @param {() => number} [random] numbers from 0 to 1 */
  constructor(random = Math.random) {
    this.random = random;
  }

  /** Pull an arm, 0 to 3. @param {number} arm @returns {1 | -1} */
  pull(arm) {
    // The Box-Muller transform: from two uniform numbers to a normal one.
    const drawn = Math.sqrt(-2 * Math.log(1 - this.random())) * Math.cos(2 * Math.PI * this.random());
    return drawn > ARMS[arm] ? 1 : -1;
  }
}
