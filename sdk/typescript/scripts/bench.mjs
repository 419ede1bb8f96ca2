// Measures concurrent runs on one client: node scripts/bench.mjs [URL] [COUNT…], after a build. Without a URL it starts a
// private server. Each row is the best of three rounds: the wall time, and the processor time of this program.
import { connect } from "../dist/index.js";

const [url = "local:", ...counts] = process.argv.slice(2);
process.on("warning", (warning) => {
  console.error(`${warning.name}: ${warning.message}`);
  process.exitCode = 1;
});
const client = await connect(url);
await client.run(["true"]);
console.log("runs\tseconds\tper run, ms\tCPU of the client, s");
for (const count of counts.length > 0 ? counts.map(Number) : [1, 10, 100, 1000]) {
  let best = { wall: Infinity, cpu: 0 };
  for (let round = 0; round < 3; round++) {
    const cpu = process.cpuUsage();
    const started = performance.now();
    await Promise.all(Array.from({ length: count }, () => client.run(["echo", "hello"], { check: true })));
    const wall = (performance.now() - started) / 1000;
    const { user, system } = process.cpuUsage(cpu);
    if (wall < best.wall) {
      best = { wall, cpu: (user + system) / 1e6 };
    }
  }
  console.log(`${count}\t${best.wall.toFixed(3)}\t${((best.wall * 1000) / count).toFixed(2)}\t${best.cpu.toFixed(2)}`);
}
await client.close();
