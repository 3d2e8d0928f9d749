// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package demo shows KubeDevice's main job on a real cluster: pods request devices, the scheduler
// chooses node and exact devices, and the containers have those and no others. It prints what each
// side says and checks that they agree.
package demo
