// Package conformance checks that a backend keeps the promises of anylock. One suite serves all backends, those of this
// repository and those of others:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Harness{
//			Open: func(ctx context.Context) (conformance.Client, error) {
//				b, err := mystore.Open(ctx, address)
//				return conformance.Client{Backend: b}, err
//			},
//		})
//	}
//
// That runs every case that needs no help. The other fields of [Harness] and [Client] let the suite break things: cut a
// client's network, drop one reply, restart the server, remove a lock by hand. A case whose help is missing is skipped by
// name; the cases of exclusion that need no fault are never skipped.
//
// Each case checks one promise and prints it when it is broken. The suite itself is tested with backends that break one
// promise each, see sabotage_test.go.
package conformance
