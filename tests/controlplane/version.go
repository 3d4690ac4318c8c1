package main

import componentversion "k8s.io/component-base/version"

// version is the Kubernetes version this binary was linked as, `v1.37.2`.
func version() string { return componentversion.Get().GitVersion }
