// Decide, send back what was clicked, and ask what learning earned: node shop.mjs http://127.0.0.1:8787
// With TypeScript installed, tsc --checkJs finds a field that is misspelt before it is sent.
// @ts-check
import { Refused, Tacit } from "./tacit.mjs";

const tacit = new Tacit(process.argv[2] ?? "http://127.0.0.1:8787");
const wanted = { ios: "film", web: "shop" };

for (let visit = 0; visit < 60; visit++) {
  const device = visit % 2 ? "ios" : "web";
  const decision = await tacit.decide("home", { key: "front page", context: { device } });
  const reward = decision.arm === wanted[device] ? 1 : 0;
  await tacit.feedback("home", { decision_id: decision.decision_id, reward });
}

const lift = await tacit.lift("home", { control: "uniform" });
console.log(`${lift.control}: ${lift.verdict}`);

try {
  await tacit.decide("home", { key: "front page", arms: ["fim"] });
} catch (error) {
  if (!(error instanceof Refused)) throw error;
  console.log(`${error.status} ${error.message}`);
}
