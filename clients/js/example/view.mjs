/** Draws games and curves on canvases, sharp on every screen, in the colors of the page. */

import { PADDLE_HALF_WIDTH } from "./catch.mjs";

const FLASH_MS = 220;

/** The colors that the style sheet names. */
export function palette() {
  const style = getComputedStyle(document.documentElement);
  const names = ["field", "ball", "paddle", "good", "bad", "line", "soft", "text", "each"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

/** Match a canvas's resolution to the screen. @returns {[CanvasRenderingContext2D, number, number]} */
function fitted(canvas) {
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return [context, width, height];
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {import("./catch.mjs").Catch} game
 * @param {{ trail: [number, number][], flash: { isGood: boolean, at: number } | null }} shown
 * @param {Record<string, string>} colors
 */
export function drawGame(canvas, game, shown, colors) {
  const [context, width, height] = fitted(canvas);
  const unit = Math.min(width, height);
  const radius = Math.max(2.5, unit * 0.035);
  const thick = Math.max(3, unit * 0.035);
  const floor = height - 2.2 * thick;
  const left = (x) => radius + ((x + 1) / 2) * (width - 2 * radius);
  const top = (y) => radius + ((1 - y) / 2) * (floor - thick / 2 - 2 * radius);

  shown.trail.forEach(([x, y], index) => {
    context.globalAlpha = (0.35 * (index + 1)) / shown.trail.length;
    disc(context, left(x), top(y), radius * (0.4 + (0.5 * (index + 1)) / shown.trail.length), colors.ball);
  });
  context.globalAlpha = 1;
  disc(context, left(game.x), top(Math.max(-1, game.y)), radius, colors.ball);

  const half = (PADDLE_HALF_WIDTH / 2) * (width - 2 * radius);
  const age = shown.flash ? performance.now() - shown.flash.at : FLASH_MS;
  context.fillStyle = age < FLASH_MS ? (shown.flash.isGood ? colors.good : colors.bad) : colors.paddle;
  context.beginPath();
  context.roundRect(left(game.paddle) - half, floor, 2 * half, thick, thick / 2);
  context.fill();
  if (age < FLASH_MS) {
    context.globalAlpha = 0.25 * (1 - age / FLASH_MS);
    context.fillRect(0, 0, width, height);
    context.globalAlpha = 1;
  }
}

/**
 * A curve from the left to the right edge, with the range of its values written at the edge.
 * @param {HTMLCanvasElement} canvas
 * @param {{ lines: { points: number[], color: string, width: number }[], low: number, high: number,
 *   format: (value: number) => string }} chart
 * @param {Record<string, string>} colors
 */
export function drawChart(canvas, { lines, low, high, format }, colors) {
  const [context, width, height] = fitted(canvas);
  const top = (value) => 8 + (1 - (value - low) / (high - low || 1)) * (height - 16);
  const marks = [low, (low + high) / 2, high];
  context.font = "11px system-ui, sans-serif";
  const right = width - 12 - Math.max(...marks.map((value) => context.measureText(format(value)).width));
  context.fillStyle = colors.soft;
  context.strokeStyle = colors.line;
  context.textBaseline = "middle";
  for (const value of marks) {
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(0, top(value));
    context.lineTo(right, top(value));
    context.stroke();
    context.fillText(format(value), right + 8, top(value));
  }
  for (const { points, color, width: thickness } of lines) {
    if (points.length < 2) continue;
    context.strokeStyle = color;
    context.lineWidth = thickness;
    context.lineJoin = "round";
    context.beginPath();
    points.forEach((value, index) => {
      const x = (index / (points.length - 1)) * right;
      const y = top(Math.min(high, Math.max(low, value)));
      if (index === 0) context.moveTo(x, y);
      else context.lineTo(x, y);
    });
    context.stroke();
  }
}

function disc(context, x, y, radius, color) {
  context.fillStyle = color;
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fill();
}
