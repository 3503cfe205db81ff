// KafkaJS's settings for SASL_SSL.

import { readFileSync } from 'node:fs'

export function secure() {
  const mechanism = process.env.SECURED_MECHANISM.toLowerCase()
  return {
    ssl: { ca: [readFileSync(process.env.SECURED_CA)] },
    sasl:
      mechanism === 'oauthbearer'
        ? { mechanism, oauthBearerProvider: async () => ({ value: process.env.SECURED_TOKEN }) }
        : { mechanism, username: process.env.SECURED_USER, password: process.env.SECURED_PASSWORD },
  }
}
