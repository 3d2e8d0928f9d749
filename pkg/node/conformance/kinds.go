// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

// Kind is a kind of plugin, and what it is tested for.
type Kind struct {
	// Name is the kind in words, as in a Result.
	Name string
	// Checks are in the order in which they run.
	Checks []Check
}

// Check is one check, as documentation.
type Check struct {
	// Name is unique for the kind.
	Name string
	// About is what holds for a plugin that passes.
	About string
}

// Kinds returns all that is checked.
func Kinds() []Kind {
	loading := Check{Name: loads, About: aboutLoads}
	return []Kind{
		{kindDevice, append([]Check{loading}, describe(deviceChecks())...)},
		{kindScheduler, append([]Check{loading}, describe(schedulerChecks())...)},
		{kindPair, describe(pairChecks())},
		{kindKubelet, describe(socketChecks())},
	}
}

func describe[T any](checks []check[T]) (list []Check) {
	for _, c := range checks {
		list = append(list, Check{Name: c.name, About: c.about})
	}
	return list
}
