// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package schema tests that the JSON Schema in deploy/schema accepts what package deviceinfo
// decodes, and nothing else.
package schema
