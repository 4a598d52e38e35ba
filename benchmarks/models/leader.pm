// Three processes draw numbers up to 4 in turn; the only one with the largest number leads. Three rounds at most.
dtmc
const int ROUNDS = 3;
formula largest = max(n1, n2, n3);
formula alone = (n1=largest ? 1 : 0) + (n2=largest ? 1 : 0) + (n3=largest ? 1 : 0) = 1;
module election
  round : [1..ROUNDS] init 1;
  n1 : [0..4] init 0;
  n2 : [0..4] init 0;
  n3 : [0..4] init 0;
  leads : [0..3] init 0;
  over : bool init false;
  [] !over & n1=0 -> 0.25 : (n1'=1) + 0.25 : (n1'=2) + 0.25 : (n1'=3) + 0.25 : (n1'=4);
  [] !over & n1>0 & n2=0 -> 0.25 : (n2'=1) + 0.25 : (n2'=2) + 0.25 : (n2'=3) + 0.25 : (n2'=4);
  [] !over & n2>0 & n3=0 -> 0.25 : (n3'=1) + 0.25 : (n3'=2) + 0.25 : (n3'=3) + 0.25 : (n3'=4);
  [] !over & n3>0 & alone -> (over'=true) & (leads'=n1=largest ? 1 : n2=largest ? 2 : 3) & (n1'=0) & (n2'=0) & (n3'=0);
  [] !over & n3>0 & !alone & round<ROUNDS -> (round'=round+1) & (n1'=0) & (n2'=0) & (n3'=0);
  [] !over & n3>0 & !alone & round=ROUNDS -> (over'=true) & (n1'=0) & (n2'=0) & (n3'=0);
  [] over -> true;
endmodule
label "goal" = over & leads=1;
label "avoid" = over & leads!=1;
