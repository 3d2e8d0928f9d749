// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package selector evaluates the CEL expressions by which device classes and requests select
// devices.
//
// Compiling and evaluating is upstream's code (k8s.io/dynamic-resource-allocation/cel), with its
// cost limits. What is added is memory: an expression is evaluated once for each set of values of
// what it reads of a device. Drivers publish a UUID and a bus address for each device, so no two
// devices are the same as a whole; but an expression that reads the product name alone has one
// answer for all devices of one product in the cluster.
package selector
