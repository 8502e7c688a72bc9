// Runs the public suite http-tests/cache-tests without its packages, for `cache_suite.rs`.
//
//   node cache_suite.mjs origin SUITE          its server, on a free loopback port, which it prints
//   node cache_suite.mjs client SUITE BASE     its client; prints one JSON object
import http from 'node:http'
import { pathToFileURL } from 'node:url'

const [role, suite, base] = process.argv.slice(2)
const load = path => import(pathToFileURL(`${suite}/${path}`))

if (role === 'origin') {
  // The suite's server would take all of the machine's addresses.
  const listen = http.Server.prototype.listen
  http.Server.prototype.listen = function () {
    return listen.call(this, 0, '127.0.0.1')
  }
  process.env.npm_config_protocol = 'http'
  process.env.npm_config_port = '0'
  process.env.npm_config_pidfile = '/dev/null'
  await load('test-engine/server/server.mjs')
} else {
  const { runTests, getResults } = await load('test-engine/client/runner.mjs')
  const { determineTestResult, resultTypes } = await load('test-engine/lib/results.mjs')
  const suites = (await load('tests/index.mjs')).default
  await runTests(suites, false, base)
  const results = getResults()
  const passed = [resultTypes.pass, resultTypes.yes]
  const tests = suites.flatMap(one => one.tests.map(test => ({ suite: one.id, ...test })))
  const told = tests.filter(test => test.browser_only !== true).map(test => ({
    suite: test.suite,
    id: test.id,
    kind: test.kind ?? 'required',
    passed: passed.includes(determineTestResult(suites, test.id, results)),
    result: results[test.id] ?? null
  }))
  console.log(JSON.stringify(told))
  process.exit(0)
}
