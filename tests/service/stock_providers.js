// The service asked by OpenFeature's stock providers for JavaScript, for servers and for browsers.
// node stock_providers.js ADDRESS prints what they were told, as JSON; NODE_PATH has the packages.
const [baseUrl] = process.argv.slice(2)

async function send(flagKey, verb, body) {
  const headers = { 'content-type': 'application/json' }
  const answer = await fetch(`${baseUrl}/v1/placements/${flagKey}/${verb}`, {
    method: 'POST', headers, body: JSON.stringify(body),
  })
  return answer.json()
}

// What a page does: the first use of a flag activates its decision, and tracking sends a reward.
function learning(send) {
  const decisions = new Map()
  return {
    after: async ({ flagKey }, { flagMetadata: { decision_id } }) => {
      if (decision_id === undefined || decisions.get(flagKey) === decision_id) return
      decisions.set(flagKey, decision_id)
      await send(flagKey, 'activate', { decision_id })
    },
    track: (flagKey, reward) => send(flagKey, 'feedback', { decision_id: decisions.get(flagKey), reward }),
  }
}

async function askAsServer() {
  const { OpenFeature } = require('@openfeature/server-sdk')
  const { OFREPProvider } = require('@openfeature/ofrep-provider')
  await OpenFeature.setProviderAndWait(new OFREPProvider({ baseUrl }))
  const flags = OpenFeature.getClient()
  const context = { targetingKey: 'user 17', key: 'server' }
  return {
    text: await flags.getStringDetails('search', 'none', context),
    truth: await flags.getBooleanDetails('dark-mode', false, context),
    number: await flags.getNumberDetails('greedy', -1, context),
    missing: await flags.getStringDetails('nowhere', 'none', context),
    unfit: await flags.getStringDetails('search', 'none', { ...context, key: 17 }),
    nobody: await flags.getStringDetails('users', 'none', { key: 'server' }),
  }
}

async function askAsBrowser() {
  const { OpenFeature } = require('@openfeature/web-sdk')
  const { OFREPWebProvider } = require('@openfeature/ofrep-web-provider')
  const statuses = []
  const fetchImplementation = async (...request) => {
    const answer = await fetch(...request)
    statuses.push(answer.status)
    return answer
  }
  const provider = new OFREPWebProvider({ baseUrl, fetchImplementation, pollInterval: 200 })
  await OpenFeature.setContext({ targetingKey: 'user 17', key: 'browser' })
  await OpenFeature.setProviderAndWait(provider)
  const flags = OpenFeature.getClient()
  const hook = learning(send)
  flags.addHooks(hook)
  const details = flags.getStringDetails('search', 'none')
  const truth = flags.getBooleanDetails('dark-mode', false)
  const missing = flags.getStringDetails('nowhere', 'none')
  while (!statuses.includes(304)) await new Promise((resume) => setTimeout(resume, 20))
  const again = flags.getStringDetails('search', 'none')
  let recorded
  do recorded = await hook.track('search', 1)
  while (recorded.outcome === 'inactive')
  await OpenFeature.setContext({ targetingKey: 'user 18', key: 'browser' })
  const other = flags.getStringDetails('search', 'none')
  await OpenFeature.close()
  return { details, truth, missing, again, other, recorded, statuses }
}

async function main() {
  const server = await askAsServer()
  console.log(JSON.stringify({ server, browser: await askAsBrowser() }))
  process.exit()
}

main()
