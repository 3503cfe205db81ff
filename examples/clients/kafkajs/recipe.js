// KafkaJS: `write BOOTSTRAP CLIENT_ID TOPIC` sends the sequence ids that it reads, one per line, and prints the outcome
// of each; `read BOOTSTRAP TOPIC GROUP COUNT` prints COUNT values of a topic or shadow.

import { createInterface } from 'node:readline'
import { Kafka, Partitioners, logLevel } from 'kafkajs'

function makeProducer(bootstrap, clientId) {
  const kafka = new Kafka({
    clientId,
    brokers: [bootstrap],
    logLevel: logLevel.NOTHING,
  })
  return kafka.producer({
    idempotent: true,
    maxInFlightRequests: 1,
    retry: { retries: Number.MAX_SAFE_INTEGER, maxRetryTime: 1000 }, // a place in the queue is kept for 5 s
    createPartitioner: Partitioners.DefaultPartitioner,
  })
}

async function send(producer, topic, number) {
  try {
    await producer.send({
      topic,
      acks: -1,
      messages: [{ value: number, headers: { 'sidecar-sequence-id': number } }],
    })
    return 'ok'
  } catch (error) {
    return `error ${error.cause?.type ?? error.type ?? error.name}`
  }
}

async function write(bootstrap, clientId, topic) {
  const producer = makeProducer(bootstrap, clientId)
  await producer.connect()
  for await (const number of createInterface({ input: process.stdin })) {
    console.log(number, await send(producer, topic, number))
  }
  await producer.disconnect()
}

async function read(bootstrap, topic, groupId, count) {
  const kafka = new Kafka({ clientId: 'reader', brokers: [bootstrap], logLevel: logLevel.NOTHING })
  const consumer = kafka.consumer({ groupId })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await new Promise((resolve) => {
    consumer.run({
      eachMessage: async ({ message }) => {
        if (count === 0) return
        console.log(message.value.toString())
        count -= 1
        if (count === 0) resolve()
      },
    })
  })
  await consumer.disconnect()
}

const [command, ...words] = process.argv.slice(2)
if (command === 'write') await write(...words)
else await read(words[0], words[1], words[2], Number(words[3]))
