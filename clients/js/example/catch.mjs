/**
 * Catch: a ball falls and bounces off the walls, a paddle waits below. Pure rules, no drawing, no network.
 *
 * State, 5 numbers in -1..1: ball x, ball y (1 is the top), ball's sideways speed, ball's fall speed, paddle x.
 * Actions: 0 left, 1 stay, 2 right. Reward: 1 for a catch, -1 for a miss, which ends the game; else 0.
 * After 20 catches the game is over too, but that is a limit (truncated), not an end.
 */

export const STATE_SIZE = 5;
export const ACTIONS = 3;
export const MOST_CATCHES = 20;
export const PADDLE_HALF_WIDTH = 0.2;

const PADDLE_SPEED = 0.12;
const MAX_SIDE_SPEED = 0.06;

export class Catch {
  /** @param {() => number} [random] numbers from 0 to 1 */
  constructor(random = Math.random) {
    this.random = random;
    this.reset();
  }

  reset() {
    this.paddle = 0;
    this.catches = 0;
    this.isMissed = false;
    this.#drop();
  }

  /** @param {number} action @returns {{ reward: number, terminal: boolean, truncated: boolean }} */
  step(action) {
    this.paddle = clamp(this.paddle + (action - 1) * PADDLE_SPEED);
    this.x += this.dx;
    this.y -= this.dy;
    if (Math.abs(this.x) > 1) {
      this.x = Math.sign(this.x) * 2 - this.x;
      this.dx = -this.dx;
    }
    if (this.y > -1) return { reward: 0, terminal: false, truncated: false };
    if (Math.abs(this.x - this.paddle) > PADDLE_HALF_WIDTH) {
      this.isMissed = true;
      return { reward: -1, terminal: true, truncated: false };
    }
    this.catches += 1;
    this.#drop();
    return { reward: 1, terminal: false, truncated: this.catches >= MOST_CATCHES };
  }

  state() {
    return Float32Array.of(this.x, this.y, this.dx / MAX_SIDE_SPEED, this.dy / 0.12, this.paddle);
  }

  #drop() {
    this.x = 1.8 * this.random() - 0.9;
    this.y = 1;
    this.dx = (2 * this.random() - 1) * MAX_SIDE_SPEED;
    this.dy = 0.07 + 0.04 * this.random();
  }
}

function clamp(value) {
  return Math.max(-1, Math.min(1, value));
}
