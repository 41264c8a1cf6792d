# Ising networks of psychometrics, as IsingFit and IsingSampler have them, as models of marginalis.
#
#     Rscript examples/ising_network.R
#
# This needs the R package reticulate and a Python environment with marginalis and pandas; docs/tutorials/r.md tells how
# to install them. `source` this file to have `mg`, the Python package, and `ising_network`. The distribution is that of
# IsingSampler:
#
#     P(x) = exp(-beta * H(x)) / Z,   H(x) = -sum_i thresholds[i] * x[i] - sum_{i<j} graph[i, j] * x[i] * x[j]

mg <- reticulate::import("marginalis")

# Return the model of an Ising network.
#   graph       symmetric matrix of couplings, or the result of IsingFit::IsingFit, IsingSampler::EstimateIsing or
#               bootnet::estimateNetwork, which has the thresholds, too
#   thresholds  a number for each item, or one number for all of them
#   beta        inverse temperature, which multiplies couplings and thresholds
#   responses   the two values of an item, c(0, 1) or c(-1, 1)
ising_network <- function(graph, thresholds = 0, beta = 1, responses = c(0L, 1L)) {
  if (is.list(graph) && !is.data.frame(graph)) {
    fit <- graph
    graph <- if (is.null(fit$weiadj)) fit$graph else fit$weiadj
    if (missing(thresholds)) thresholds <- if (is.null(fit$thresholds)) fit$intercepts else fit$thresholds
    if (is.null(graph) || is.null(thresholds)) stop("the list has no weiadj or graph, or no thresholds or intercepts")
  }
  graph <- as.matrix(graph)
  items <- if (is.null(colnames(graph))) paste0("V", seq_len(ncol(graph))) else colnames(graph)
  if (!is.numeric(graph) || !all(is.finite(graph))) stop("graph has values that are missing or no finite numbers")
  if (!isSymmetric(unname(graph))) stop("graph is not a symmetric matrix")
  if (!length(thresholds) %in% c(1, ncol(graph))) {
    stop("there are ", length(thresholds), " thresholds for ", ncol(graph), " items")
  }
  if (!is.numeric(beta) || length(beta) != 1 || !is.finite(beta) || beta <= 0) stop("beta is not a positive number")
  units <- if (setequal(responses, c(0, 1))) "binary" else if (setequal(responses, c(-1, 1))) "spin"
  if (is.null(units)) stop("responses are neither 0, 1 nor -1, 1: see IsingSampler::LinTransform")
  if (any(diag(graph) != 0)) warning("the diagonal of graph is set to 0")
  diag(graph) <- 0
  mg$from_matrix((graph + t(graph)) / 2, rep_len(as.numeric(thresholds), ncol(graph)),
                 units = units, labels = as.list(items), temperature = 1 / beta)
}

# The sum over all states, which IsingSampler::IsingLikelihood computes: only for a few items.
brute_force_log_z <- function(graph, thresholds, beta = 1, responses = c(0L, 1L)) {
  states <- as.matrix(do.call(expand.grid, rep(list(responses), ncol(graph))))
  exponents <- beta * (states %*% thresholds + rowSums((states %*% graph) * states) / 2)
  max(exponents) + log(sum(exp(exponents - max(exponents))))
}

# A random network of n items, each joined to so many others on average.
random_network <- function(n, neighbours = n / 4) {
  graph <- matrix(0, n, n, dimnames = list(NULL, paste0("item", seq_len(n))))
  pairs <- upper.tri(graph)
  graph[pairs] <- rnorm(sum(pairs), 2, 2) / neighbours * (runif(sum(pairs)) < neighbours / (n - 1))
  list(graph = graph + t(graph), thresholds = rnorm(n, -1, 0.5))
}

if (sys.nframe() == 0) {
  set.seed(1)
  for (n in c(10, 30, 60)) {
    network <- random_network(n)
    found <- mg$free_energy(ising_network(network), tolerance = 0.05)
    cat(sprintf("%d items: ln Z = %.6f (standard error %.2g), %s", n, found$log_z, found$stderr, found$how))
    if (n == 10) cat(sprintf("; all states: %.6f", brute_force_log_z(network$graph, network$thresholds)))
    cat("\n")
  }
}
