// Package inspect reads what strangers send: header fields, signatures, JSON and ids. It refuses what two readers could understand
// differently, such as a name that occurs twice in a JSON object, because a verifier would then vouch for one meaning and the handler
// would act on the other.
package inspect
